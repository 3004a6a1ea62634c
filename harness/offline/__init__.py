"""What can be known without the device: symbols, routes and generated code, from the sources of an installed or a named version."""
