"""The settings of a broker by subject, each built on the one before; `broker` has them all."""
