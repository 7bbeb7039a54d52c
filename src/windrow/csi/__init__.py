"""The CSI driver `driver.harvesterhci.io`: volumes and snapshots on Harvester for the pods of a guest cluster."""
