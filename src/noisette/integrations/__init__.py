"""Private training inside of the trainers of other libraries, each of which one module here needs."""
