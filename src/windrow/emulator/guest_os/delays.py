"""Delays inside a simulated machine, all in one place, so that tests and benchmarks can add them up.

The values are those of a small VM with images at hand. Each is in seconds of simulated time; the host interface's
`time_scale` divides every one of them. "04 §7.3" means: chosen so that the goals of that table come out (a first server answers
60-150 s after its VM started, servers join in 30-60 s, workers in 20-40 s).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GuestDelays:
    """All delays of a guest, in seconds."""

    # Boot: a cloud image on virtio takes 20-60 s from power-on to cloud-init's end (04 §7.3, step 3).
    kernel: float = 6.0
    cloud_init_local: float = 2.0
    dhcp: float = 1.0
    cloud_init_config: float = 3.0
    package_update: float = 6.0
    package: float = 3.0
    poweroff: float = 4.0

    # The guest agent reports as soon as its service runs (05 §2.6).
    agent: float = 1.0

    # RKE2: download and unpack; a service that fails is started again after RestartSec=5s of its unit.
    install: float = 10.0
    service_restart: float = 5.0
    # Pull and unpack the images of another release than the one that the disk has (our estimate).
    pull: float = 15.0

    # First server (04 §7.3, step 4). The supervisor answers before the API does.
    supervisor: float = 8.0
    etcd: float = 6.0
    api: float = 14.0

    # Joining (04 §7.3, steps 5 and 6). Learners are checked every 15 s; a learner without progress is dropped
    # after 5 min (K3s' etcd driver).
    join_retry: float = 5.0
    etcd_join_retry: float = 1.0
    learner_catch_up: float = 5.0
    learner_check: float = 15.0
    learner_stalled: float = 300.0
    # A snapshot of a small database, and its way to a bucket (our estimates).
    snapshot: float = 1.0
    upload: float = 1.0
    # API servers look every minute whether their encryption keys have changed; then each Secret is written anew (our estimates).
    encryption_reload: float = 30.0
    reencryption: float = 2.0
    agent_start: float = 8.0

    # Kubelet: registration, network plug-in, status and lease period of 10 s (04 §9.4).
    kubelet: float = 4.0
    network_plugin: float = 10.0
    heartbeat: float = 10.0

    # Control plane: grace period of 40 s and eviction after 300 s are Kubernetes' defaults (04 §9.4); etcd requests
    # time out after 7 s without a leader; controllers of a new leader start after its lease is taken.
    node_grace: float = 40.0
    eviction: float = 300.0
    etcd_timeout: float = 7.0
    leader_takeover: float = 2.0

    # Helm jobs that install bundled charts, and the restart back-off of their pods (10 s doubling to 300 s).
    chart: float = 8.0
    pod_start: float = 2.0
    crash_backoff: float = 10.0
    crash_backoff_limit: float = 300.0
    manifests_retry: float = 15.0

    # Pods of workloads: started as above, Ready after their first probe, ended well before their grace is over; those
    # of Jobs exit by themselves (our estimates).
    pod_ready: float = 1.0
    pod_stop: float = 1.0
    pod_run: float = 2.0
    # How often kube-controller-manager looks for pods to collect: those that terminate on a node out of service.
    pod_gc: float = 20.0

    # The attach-detach controller waits so long for a node that does not unmount (Kubernetes' maxWaitForUnmountDuration).
    force_detach: float = 360.0

    # kube-vip: binds an address, announces it by ARP and writes the Service twice; DHCP needs an interface and four
    # messages first (our estimates), and is given up after eight requests in 127 s. The leader's lease is kube-vip's
    # default: 15 s, lost after 10 s without API. Leases of DHCP are renewed after half of an hour's lease (our estimate).
    vip: float = 0.05
    vip_dhcp: float = 3.0
    vip_dhcp_patience: float = 124.0
    vip_lease: float = 15.0
    vip_renew: float = 10.0
    vip_renewal: float = 1800.0
