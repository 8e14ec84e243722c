"""A supervised MQTT 5 connection, shared by the device and the operator's tools."""
