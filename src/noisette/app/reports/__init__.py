"""Pictures and pages about mechanisms and runs. The only package that knows matplotlib."""
