"""Parts of `windrow check`: the fields that no kind has, and what Harvester is asked."""
