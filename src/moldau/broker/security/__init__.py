"""Who may do what: principals, rights and the authorizer."""
