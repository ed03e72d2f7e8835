"""All tests, as one package: helpers are imported by their full name, whatever folder runs first."""
