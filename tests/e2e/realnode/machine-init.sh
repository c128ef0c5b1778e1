#!/bin/busybox sh
# First process of a virtual machine: mounts the files of the machine that emulates it, lays a tmpfs over them, and starts
# Python there. PYTHON, FOLDER (shared with the outside, and writable) and FILE come from the kernel's command line.
export PATH=/bin:/usr/bin:/sbin:/usr/sbin
mount -t proc proc /proc
for module in $(cat /modules/order); do insmod "/modules/$module"; done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose outside /outside
mount -t tmpfs tmpfs /memory
mkdir /memory/upper /memory/work /memory/root
mount -t overlay -o lowerdir=/outside,upperdir=/memory/upper,workdir=/memory/work overlay /memory/root
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 shared "/memory/root$FOLDER"
exec switch_root /memory/root "$PYTHON" -m realnode.guest "$FILE"
