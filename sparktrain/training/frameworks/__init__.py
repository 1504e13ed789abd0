"""What differs between the frameworks that users train with: a folder for each, which alone imports it."""
