"""The data folder of a broker: all of its logs, and the files about them.

How one log is stored is not said here, but beside `moldau.log.log`.
"""
