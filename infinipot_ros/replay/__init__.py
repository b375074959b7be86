"""Recorded video without a ROS graph: read bags, video files and folders of images."""
