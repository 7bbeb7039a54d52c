from windrow.cloudprovider.nodes.homes import Homes


def test_a_node_is_found_by_its_vm_and_the_other_way_round():
    homes = Homes()
    homes.settle("db", "vm7")

    assert (homes.vm_of("db"), list(homes.nodes_of("vm7"))) == ("vm7", ["db"])


def test_a_node_has_one_home():
    homes = Homes()
    homes.settle("db", "vm7")
    homes.settle("db", "vm8")

    assert (list(homes.nodes_of("vm7")), list(homes.nodes_of("vm8"))) == ([], ["db"])


def test_a_renamed_guest_leaves_two_nodes_in_one_vm():
    homes = Homes()
    homes.settle("old", "vm7")
    homes.settle("new", "vm7")
    homes.leave("old")
    homes.leave("old")

    assert (homes.vm_of("old"), list(homes.nodes_of("vm7"))) == ("", ["new"])
