"""The ROS 2 side: the only part of the package that imports rclpy and messages."""
