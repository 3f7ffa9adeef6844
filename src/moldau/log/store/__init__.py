"""The data folder of a broker: all of its logs, and what is known of them from outside.

How one log is stored is not said here, but beside `moldau.log.log`.
"""
