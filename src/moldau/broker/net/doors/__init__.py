"""The doors of secure listeners: TLS handshakes, logins, and the security between brokers."""
