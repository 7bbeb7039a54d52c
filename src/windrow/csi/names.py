"""Every name of the CSI driver that other programs or other releases rely on, with its history.

The driver's name, the handles and the class parameters are those of the Go driver, so that its volumes, snapshots and
StorageClasses stay in use. Keys that start with `windrow.io/` are ours.
"""

from __future__ import annotations

from windrow.harvester.names import CSI_DRIVER

DRIVER = CSI_DRIVER

# Parameters of StorageClasses. The first names the class on Harvester, and is stronger than --host-storage-class.
HOST_STORAGE_CLASS = "hostStorageClass"
# The Go driver acts on "filesystem" and ignores any other value; here anything but these two is refused.
HOST_VOLUME_MODE = "hostVolumeMode"
HOST_VOLUME_MODES = ("block", "filesystem")
# Parameters of VolumeSnapshotClasses: "backup" is a backup to the target of Harvester, "snapshot" one in its storage.
SNAPSHOT_TYPE = "type"
SNAPSHOT_TYPES = ("snapshot", "backup")
# The side-cars put these into parameters and contexts (--extra-create-metadata); `pvc/name`, `pvc/namespace`, `pv/name`.
SIDECAR_PREFIXES = ("csi.storage.k8s.io/", "storage.kubernetes.io/")

# What the controller tells the node about an attached volume, in publish_context. The Go driver told nothing, so all of it
# may be missing. The serial of the disk, as the guest sees it in /dev/disk/by-id: at most 36 characters.
PUBLISH_SERIAL = "serial"
# The size of the volume when it was attached, in bytes as a decimal number: the device has at least as many.
PUBLISH_CAPACITY = "capacityBytes"
# The bus of the disk: "scsi".
PUBLISH_BUS = "bus"
# Of a shared volume, in place of these: the address of its NFS server, what it exports, and the options to mount it with.
PUBLISH_SHARE_SERVER = "nfsServer"
PUBLISH_SHARE_EXPORT = "nfsExport"
PUBLISH_SHARE_OPTIONS = "nfsMountOptions"

# What begins the handle of a backup: backup:<namespace>/<name>. Any other snapshot handle is a VolumeSnapshot's name.
BACKUP_HANDLE = "backup:"
