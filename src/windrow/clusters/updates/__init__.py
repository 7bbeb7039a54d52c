"""Changes in place as the guest shows them, and as statuses say them."""
