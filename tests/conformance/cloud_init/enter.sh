# Makes ROOT a system of its own and runs cloud-init's stages there: sh enter.sh ROOT PYTHON PROGRAM COMMANDS
#
# It is run in new namespaces of mounts, host name, network and processes. The machine's programs and libraries are there
# read-only, all else is ROOT's: accounts, host name, /usr/local, devices. Nothing outside of ROOT can be written.
set -e
root=$1 python=$2 program=$3 commands=$4
mount --make-rprivate /
for name in bin lib lib64 sbin; do
  [ -e "/$name" ] && ln -s "usr/$name" "$root/$name"
done
mount --bind /usr "$root/usr"
mount -o remount,bind,ro "$root/usr"
mount --bind "$root/local" "$root/usr/local"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev"
for device in null zero random urandom; do
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LC_ALL=C.UTF-8
exec chroot "$root" "$python" "$program" "$commands"
