// Builds virtual machines with Harvester's own VM builder, from cases on standard input, so that ours can be compared.
//
// In:  [{"name": …, "disks": […], …}, …]   one case each, see `vmSpec`
// Out: [{"apiVersion": "kubevirt.io/v1", …}, …]
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/harvester/harvester/pkg/builder"
	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

type disk struct {
	Name, Bus, Claim, Size, Class, Image string
	CDRom, Hotpluggable                  bool
	BootOrder                            uint
}

type card struct{ Name, Model, MAC, Type, Network string }

type device struct{ Name, Device string }

type vmSpec struct {
	Creator, Namespace, Name, Memory string
	CPU                              int
	Labels, Annotations              map[string]string
	Affinity                         *corev1.Affinity
	Disks                            []disk
	Cards                            []card
	VGPUs                            []device
	TPM, Pinned, Isolated            bool
	SSHNames                         []string
	CloudInit                        builder.CloudInitSource
}

func build(w vmSpec) (*kubevirtv1.VirtualMachine, error) {
	vm := builder.NewVMBuilder(w.Creator).Namespace(w.Namespace).Name(w.Name).CPU(w.CPU).Memory(w.Memory).
		Labels(w.Labels).Annotations(w.Annotations).Affinity(w.Affinity).
		CloudInitDisk(builder.CloudInitDiskName, builder.DiskBusVirtio, false, 0, w.CloudInit).
		EvictionStrategy(true).RunStrategy(kubevirtv1.RunStrategyRerunOnFailure).
		DedicatedCPUPlacement(w.Pinned).IsolateEmulatorThread(w.Isolated)
	for _, name := range w.SSHNames {
		vm = vm.SSHKey(name)
	}
	for _, each := range w.Cards {
		vm = vm.NetworkInterface(each.Name, each.Model, each.MAC, each.Type, each.Network)
	}
	for _, each := range w.VGPUs {
		vm = vm.GPU(each.Name, each.Device, "", nil)
	}
	for _, each := range w.Disks {
		option := &builder.PersistentVolumeClaimOption{
			ImageID: each.Image, StorageClassName: &each.Class,
			VolumeMode: corev1.PersistentVolumeBlock, AccessMode: corev1.ReadWriteMany,
		}
		vm = vm.PVCDisk(each.Name, each.Bus, each.CDRom, each.Hotpluggable, each.BootOrder, each.Size, each.Claim, option)
	}
	if w.TPM {
		vm = vm.TPM()
	}
	return vm.VM()
}

func main() {
	var specs []vmSpec
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&specs); err != nil {
		log.Fatal(err)
	}
	var built []*kubevirtv1.VirtualMachine
	for _, each := range specs {
		vm, err := build(each)
		if err != nil {
			log.Fatalf("%s: %v", each.Name, err)
		}
		built = append(built, vm)
	}
	if err := json.NewEncoder(os.Stdout).Encode(built); err != nil {
		log.Fatal(err)
	}
}
