"""What people see, as pure functions from data to lines. `paint` alone knows about terminals."""
