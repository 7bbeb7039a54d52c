"""`windrow addon`: the credential of a cluster made by hand, as Harvester's scripts generate_addon.sh and generate_addon_csi.sh
print it.

`account` says which objects on Harvester an account has, `plan` what to create, replace or delete, `run` reads and writes,
`output` is the text that the scripts print.
"""
