"""Mounts on a node: from the disk that was attached to the VM to the folder or the block device in a pod.

* `port`: what the node service asks for, and the errors; `linux` does it with the tools and calls of this computer, in a module for
  each subject;
* `devices` finds the disk of a volume, `filesystems` says what is on it and makes, checks and grows filesystems;
* `mountinfo` reads what is mounted, `options` translates mount options, `syscalls` is mount(2) and umount2(2);
* `formatting` records that a filesystem is being made, so that an interrupted mkfs is told from unknown data.

The layout is kubelet's: a filesystem is mounted once, at the staging path, and bind-mounted from there into each pod. The
Go driver mounted in each pod directly; what it left is accepted wherever something is taken away.
"""
