"""Security: principals, rights and the authorizer."""
