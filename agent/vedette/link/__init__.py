"""The device's place on the MQTT plane: what it says, what it hears, what waits until it can be said."""
