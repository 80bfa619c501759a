"""Processes that begin as copies of one that has already imported their modules.

The imports of an engine process take longer than most tests that start one. All else is as in the program: the function
`main` of the module runs in a process of its own, with its own pipes, session and environment. What the program itself
does is tested where `tests.program` starts it.
"""
