"""The composition of the CSI driver as a process."""
