"""Kubernetes clusters on Harvester HCI, and an embedded Harvester to try them on."""

# The release that is being worked on. A build has four values of its own in place of these (setup.py): the version of the git tag, the
# commit, its date, and whether files differed from it. Where there is no commit, the program runs from a checkout, or was built without git.
__version__ = "0.1.0"
__commit__ = ""
__date__ = ""
__dirty__ = False
