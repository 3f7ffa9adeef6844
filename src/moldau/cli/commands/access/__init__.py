"""Commands about who may do what: users, rules, quotas, certificates."""
