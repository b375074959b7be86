"""Ask a robot's camera stream questions, in constant memory.

Start reading at `infinipot_ros.core`, the ROS-free heart: `StreamEngine.observe`, `ask`, `reset`.
`infinipot_ros.ros` turns it into a node; `infinipot_ros.msg`, `.srv` and `.action` are generated
from the interface files when the package is built.
"""

from pkgutil import extend_path

__version__ = "0.1.0"

# The generated modules exist only in the installed package. When a source checkout comes first on
# sys.path, this lets it find them there, so that edited sources run without a rebuild.
__path__ = extend_path(__path__, __name__)
