#!/bin/sh
# First process of the virtual machine: four soft RoCE devices, four soft iWARP devices, a pod's network namespace with an
# interface on each rail, and what the tests look at. A step is a line `@@ NAME`, its output, and a line `@@ exit CODE`.
export PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmpfs /run
for module in $(cat /modules/order); do insmod "/modules/$module"; done

ip() { /bin/ip "$@"; }  # not busybox's, which its shell prefers
step() { name=$1; shift; echo "@@ $name"; "$@" 2>&1; echo "@@ exit $?"; }
preflight() {
  rails=
  for rail in 0 1 2 3; do rails="$rails --rail rail$rail,device=mlx5_$rail,interface=net$((rail + 1))"; done
  ip netns exec pod python3 -m railwright.preflight --transport roce $rails "$@"
}
add_pod() {
  ip netns add pod
  ip -n pod link set lo up
  for rail in 0 1 2 3; do
    ip link add "net$((rail + 1))" link "lan$((rail + 2))" mtu 9000 netns pod type macvlan mode bridge
    ip -n pod addr add "192.168.$((rail + 2)).9/24" dev "net$((rail + 1))"
    ip -n pod link set "net$((rail + 1))" up
  done
}

ip link set lo up
for rail in 0 1 2 3; do  # a cable: the node's card, and its far end
  ip link add "lan$((rail + 2))" mtu 9000 type veth peer name "far$((rail + 2))" mtu 9000
  ip link set "far$((rail + 2))" up
  ip link set "lan$((rail + 2))" up
  ip addr add "192.168.$((rail + 2)).101/24" dev "lan$((rail + 2))"
  rdma link add "mlx5_$rail" type rxe netdev "lan$((rail + 2))"
done
add_pod
step ready preflight --mtu 9000 --wait 20
step device-link ls -d /sys/class/infiniband/mlx5_0/device/infiniband_verbs
step small-mtu preflight --mtu 9100 --wait 0
ip -n pod link set net2 down
step set-down preflight --mtu 9000 --wait 0
ip -n pod link set net2 up
ip -n pod addr del 192.168.4.9/24 dev net3
step no-address preflight --mtu 9000 --wait 0
ip -n pod addr add 192.168.4.9/24 dev net3
rdma link delete mlx5_2
ip link set far5 down
step no-link-and-no-device preflight --wait 0
rdma link add mlx5_2 type rxe netdev lan4
ip link set far5 up
step repaired preflight --mtu 9000 --wait 20
write() {  # device, address, options
  ib_write_bw -F -d "$1" -s 4096 -n 20 $3 > /run/server.log 2>&1 &
  server=$!
  # until it listens on its port, 18515, or has ended
  while kill -0 $server 2> /dev/null && ! grep -q ':4853 .* 0A ' /proc/net/tcp; do sleep 0.2; done
  ib_write_bw -F -d "$1" -s 4096 -n 20 $3 "$2"
  code=$?
  wait
  return $code
}
for device in $(cat /devices); do step "write-$device" write "$device" 127.0.0.1; done
for rail in 0 1 2 3; do rdma link add "erdma_$rail" type siw netdev "lan$((rail + 2))"; done
iwarp() {  # transport, keys of a rail
  ip netns exec pod python3 -m railwright.preflight --transport "$1" --rail "rail0,device=erdma_0$2" --wait 0
}
step iwarp-device-link ls -d /sys/class/infiniband/erdma_0/device/infiniband_verbs
step iwarp iwarp erdma
step iwarp-as-roce iwarp roce ,interface=net1
step write-erdma_0 write erdma_0 192.168.2.101 -R
ip netns delete pod
step exclusive rdma system set netns exclusive
add_pod
step hidden preflight --wait 0
poweroff -f
