"""The CPUs of this process, and the threads that use them: of a step, and of the draws."""
