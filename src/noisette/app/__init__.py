"""The application: what the command `noisette` does, built on the library, which never imports it."""
