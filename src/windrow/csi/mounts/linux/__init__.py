"""The adapter of the port Mounts for Linux nodes. It needs root and CAP_SYS_ADMIN.

Two facts hold the rest together. What is mounted is read from the kernel before each act, never remembered; so a verb after
a crash finds what the crash left. And while a disk is examined, formatted or checked its device is locked (flock(2), which
udev respects), and mkfs and fsck inherit the lock: one that survives its driver keeps the next driver away.

`mounts` has the verbs of the port. They are made of what `blocks`, `filesystems` and `shares` do with block devices, disks with a
filesystem and volumes of an NFS server; `disks` finds and locks the disk of a volume, `table` reads and changes what is mounted, and
`kernel` makes the calls, each in bounded time.
"""
