"""HTTP: what a broker shows to programs that do not speak Kafka's protocol.

One small server beside the broker, in its loop, and one module per thing that it shows. Nothing
here is imported unless `http.listen` is set.
"""
