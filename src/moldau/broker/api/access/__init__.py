"""APIs of access control: rules, quotas, and the passwords of SCRAM users."""
