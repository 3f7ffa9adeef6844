"""`moldau top`: brokers, topics and groups live in a terminal, from what each broker shows."""
