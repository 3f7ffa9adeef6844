"""Processes on this machine: brokers, a ZooKeeper ensemble, ports, a watchdog.

What `moldau up` and `moldau.testing` share.
"""
