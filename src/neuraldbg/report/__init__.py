"""A diagnosis in the forms that people and programs read."""
