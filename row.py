import sys; sys.path.insert(0,"/work/wt/a/bench")
from code_size import loaded
import json
