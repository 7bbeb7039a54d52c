"""The pages: each reads what it shows from the API, as its user, and gives a template with values."""
