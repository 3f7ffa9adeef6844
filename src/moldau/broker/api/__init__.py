"""The APIs of the protocol that a broker answers: one module each, or one for a close family."""
