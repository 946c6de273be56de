"""Results made readable: tables in the terminal, pictures, JSON."""
