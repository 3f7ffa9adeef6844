"""APIs about transactions: who produces, what belongs to a transaction, and how it ends."""
