"""The management API for programs that act for its users."""
