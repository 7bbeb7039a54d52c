from windrow.cloudprovider.nodes.vms import NodeVmIndex


def test_a_node_is_found_by_its_vm_and_the_other_way_round():
    homes = NodeVmIndex()
    homes.set("db", "vm7")

    assert (homes.vm_of("db"), list(homes.nodes_of("vm7"))) == ("vm7", ["db"])


def test_a_node_has_one_home():
    homes = NodeVmIndex()
    homes.set("db", "vm7")
    homes.set("db", "vm8")

    assert (list(homes.nodes_of("vm7")), list(homes.nodes_of("vm8"))) == ([], ["db"])


def test_a_renamed_guest_leaves_two_nodes_in_one_vm():
    homes = NodeVmIndex()
    homes.set("old", "vm7")
    homes.set("new", "vm7")
    homes.remove("old")
    homes.remove("old")

    assert (homes.vm_of("old"), list(homes.nodes_of("vm7"))) == ("", ["new"])
