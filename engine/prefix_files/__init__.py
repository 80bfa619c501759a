"""Prefixes on disk: the format of the files, their directory, and the threads that read and write it."""
