"""What scripts take from horovod.common."""
