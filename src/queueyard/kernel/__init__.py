"""What all five systems share. The kernel knows no system and imports the standard library and msgspec only."""
