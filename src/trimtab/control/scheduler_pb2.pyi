from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetIdentityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Identity(_message.Message):
    __slots__ = ("name", "policy", "writes", "pooled", "vcs", "now_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    POOLED_FIELD_NUMBER: _ClassVar[int]
    VCS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    policy: str
    writes: bool
    pooled: bool
    vcs: _containers.RepeatedCompositeFieldContainer[VirtualCluster]
    now_ms: int
    def __init__(self, name: _Optional[str] = ..., policy: _Optional[str] = ..., writes: _Optional[bool] = ..., pooled: _Optional[bool] = ..., vcs: _Optional[_Iterable[_Union[VirtualCluster, _Mapping]]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class VirtualCluster(_message.Message):
    __slots__ = ("name", "nodes", "gpus_per_node", "cores_per_node", "memory_mib_per_node")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    GPUS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    CORES_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    name: str
    nodes: int
    gpus_per_node: int
    cores_per_node: int
    memory_mib_per_node: int
    def __init__(self, name: _Optional[str] = ..., nodes: _Optional[int] = ..., gpus_per_node: _Optional[int] = ..., cores_per_node: _Optional[int] = ..., memory_mib_per_node: _Optional[int] = ...) -> None: ...

class GetKnobsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InForce(_message.Message):
    __slots__ = ("knobs", "version", "as_of_ms")
    class KnobsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KNOBS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AS_OF_MS_FIELD_NUMBER: _ClassVar[int]
    knobs: _containers.ScalarMap[str, str]
    version: int
    as_of_ms: int
    def __init__(self, knobs: _Optional[_Mapping[str, str]] = ..., version: _Optional[int] = ..., as_of_ms: _Optional[int] = ...) -> None: ...

class ApplyKnobsRequest(_message.Message):
    __slots__ = ("key", "expected_version", "knobs")
    class KnobsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    KNOBS_FIELD_NUMBER: _ClassVar[int]
    key: str
    expected_version: int
    knobs: _containers.ScalarMap[str, str]
    def __init__(self, key: _Optional[str] = ..., expected_version: _Optional[int] = ..., knobs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("key", "version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    key: str
    version: int
    def __init__(self, key: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class GetStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class State(_message.Message):
    __slots__ = ("now_ms", "knobs", "jobs", "engine")
    class KnobsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    KNOBS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    now_ms: int
    knobs: _containers.ScalarMap[str, str]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    engine: Engine
    def __init__(self, now_ms: _Optional[int] = ..., knobs: _Optional[_Mapping[str, str]] = ..., jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., engine: _Optional[_Union[Engine, _Mapping]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("facts", "nodes", "held_ms", "preemptions", "first_start_ms", "started_ms", "stopped_ms", "estimate_ms", "engine")
    FACTS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    HELD_MS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    FIRST_START_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_MS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_MS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    facts: JobFacts
    nodes: _containers.RepeatedCompositeFieldContainer[NodeGpus]
    held_ms: int
    preemptions: int
    first_start_ms: int
    started_ms: int
    stopped_ms: int
    estimate_ms: int
    engine: EngineJob
    def __init__(self, facts: _Optional[_Union[JobFacts, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[NodeGpus, _Mapping]]] = ..., held_ms: _Optional[int] = ..., preemptions: _Optional[int] = ..., first_start_ms: _Optional[int] = ..., started_ms: _Optional[int] = ..., stopped_ms: _Optional[int] = ..., estimate_ms: _Optional[int] = ..., engine: _Optional[_Union[EngineJob, _Mapping]] = ...) -> None: ...

class NodeGpus(_message.Message):
    __slots__ = ("node", "gpus")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    node: int
    gpus: int
    def __init__(self, node: _Optional[int] = ..., gpus: _Optional[int] = ...) -> None: ...

class JobFacts(_message.Message):
    __slots__ = ("label", "submit_ms", "gpus", "vc", "user", "name", "skew_ppm", "spread_ppm", "profile", "service", "curve", "limit_ms", "account", "qos")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_MS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    VC_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SKEW_PPM_FIELD_NUMBER: _ClassVar[int]
    SPREAD_PPM_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    CURVE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_MS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    label: str
    submit_ms: int
    gpus: int
    vc: str
    user: str
    name: str
    skew_ppm: int
    spread_ppm: int
    profile: Profile
    service: Service
    curve: Curve
    limit_ms: int
    account: str
    qos: str
    def __init__(self, label: _Optional[str] = ..., submit_ms: _Optional[int] = ..., gpus: _Optional[int] = ..., vc: _Optional[str] = ..., user: _Optional[str] = ..., name: _Optional[str] = ..., skew_ppm: _Optional[int] = ..., spread_ppm: _Optional[int] = ..., profile: _Optional[_Union[Profile, _Mapping]] = ..., service: _Optional[_Union[Service, _Mapping]] = ..., curve: _Optional[_Union[Curve, _Mapping]] = ..., limit_ms: _Optional[int] = ..., account: _Optional[str] = ..., qos: _Optional[str] = ...) -> None: ...

class Profile(_message.Message):
    __slots__ = ("model", "gpu_util", "gmem_util", "gmem_mib", "amp")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    GPU_UTIL_FIELD_NUMBER: _ClassVar[int]
    GMEM_UTIL_FIELD_NUMBER: _ClassVar[int]
    GMEM_MIB_FIELD_NUMBER: _ClassVar[int]
    AMP_FIELD_NUMBER: _ClassVar[int]
    model: str
    gpu_util: float
    gmem_util: float
    gmem_mib: int
    amp: bool
    def __init__(self, model: _Optional[str] = ..., gpu_util: _Optional[float] = ..., gmem_util: _Optional[float] = ..., gmem_mib: _Optional[int] = ..., amp: _Optional[bool] = ...) -> None: ...

class Service(_message.Message):
    __slots__ = ("kind", "deadlines_ms", "values")
    KIND_FIELD_NUMBER: _ClassVar[int]
    DEADLINES_MS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    deadlines_ms: _containers.RepeatedScalarFieldContainer[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kind: _Optional[str] = ..., deadlines_ms: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[int]] = ...) -> None: ...

class Curve(_message.Message):
    __slots__ = ("cores", "memory_mib", "speeds_ppm", "footprint_mib")
    CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    SPEEDS_PPM_FIELD_NUMBER: _ClassVar[int]
    FOOTPRINT_MIB_FIELD_NUMBER: _ClassVar[int]
    cores: _containers.RepeatedScalarFieldContainer[int]
    memory_mib: _containers.RepeatedScalarFieldContainer[int]
    speeds_ppm: _containers.RepeatedScalarFieldContainer[int]
    footprint_mib: int
    def __init__(self, cores: _Optional[_Iterable[int]] = ..., memory_mib: _Optional[_Iterable[int]] = ..., speeds_ppm: _Optional[_Iterable[int]] = ..., footprint_mib: _Optional[int] = ...) -> None: ...

class EngineJob(_message.Message):
    __slots__ = ("id", "home", "level", "place", "since_ms", "graded_ms", "done", "speed_ppm", "overhead_ms", "paid_ms", "first_ms", "promotions", "shielded", "lease_start_ms", "lease_end_ms", "renewal_ms", "submit_job_ms", "partner", "until_ms", "share_cores", "share_memory_mib", "resized_ms", "resizes", "promise_ms", "stamp", "grades", "note")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    GRADED_MS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    SPEED_PPM_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    PAID_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_MS_FIELD_NUMBER: _ClassVar[int]
    PROMOTIONS_FIELD_NUMBER: _ClassVar[int]
    SHIELDED_FIELD_NUMBER: _ClassVar[int]
    LEASE_START_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_END_MS_FIELD_NUMBER: _ClassVar[int]
    RENEWAL_MS_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_JOB_MS_FIELD_NUMBER: _ClassVar[int]
    PARTNER_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    SHARE_CORES_FIELD_NUMBER: _ClassVar[int]
    SHARE_MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    RESIZED_MS_FIELD_NUMBER: _ClassVar[int]
    RESIZES_FIELD_NUMBER: _ClassVar[int]
    PROMISE_MS_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    GRADES_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    id: int
    home: int
    level: int
    place: int
    since_ms: int
    graded_ms: int
    done: int
    speed_ppm: int
    overhead_ms: int
    paid_ms: int
    first_ms: int
    promotions: int
    shielded: bool
    lease_start_ms: int
    lease_end_ms: int
    renewal_ms: int
    submit_job_ms: int
    partner: int
    until_ms: int
    share_cores: int
    share_memory_mib: int
    resized_ms: int
    resizes: int
    promise_ms: int
    stamp: int
    grades: _containers.RepeatedScalarFieldContainer[int]
    note: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., home: _Optional[int] = ..., level: _Optional[int] = ..., place: _Optional[int] = ..., since_ms: _Optional[int] = ..., graded_ms: _Optional[int] = ..., done: _Optional[int] = ..., speed_ppm: _Optional[int] = ..., overhead_ms: _Optional[int] = ..., paid_ms: _Optional[int] = ..., first_ms: _Optional[int] = ..., promotions: _Optional[int] = ..., shielded: _Optional[bool] = ..., lease_start_ms: _Optional[int] = ..., lease_end_ms: _Optional[int] = ..., renewal_ms: _Optional[int] = ..., submit_job_ms: _Optional[int] = ..., partner: _Optional[int] = ..., until_ms: _Optional[int] = ..., share_cores: _Optional[int] = ..., share_memory_mib: _Optional[int] = ..., resized_ms: _Optional[int] = ..., resizes: _Optional[int] = ..., promise_ms: _Optional[int] = ..., stamp: _Optional[int] = ..., grades: _Optional[_Iterable[int]] = ..., note: _Optional[_Iterable[int]] = ...) -> None: ...

class Engine(_message.Message):
    __slots__ = ("arrived", "places", "tick_anchor_ms", "vcs", "completed_gpu_ms", "sampled", "sampled_ms", "crossing")
    ARRIVED_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    TICK_ANCHOR_MS_FIELD_NUMBER: _ClassVar[int]
    VCS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_GPU_MS_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_MS_FIELD_NUMBER: _ClassVar[int]
    CROSSING_FIELD_NUMBER: _ClassVar[int]
    arrived: int
    places: _containers.RepeatedScalarFieldContainer[int]
    tick_anchor_ms: int
    vcs: _containers.RepeatedCompositeFieldContainer[VirtualClusterState]
    completed_gpu_ms: _containers.RepeatedScalarFieldContainer[int]
    sampled: int
    sampled_ms: int
    crossing: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, arrived: _Optional[int] = ..., places: _Optional[_Iterable[int]] = ..., tick_anchor_ms: _Optional[int] = ..., vcs: _Optional[_Iterable[_Union[VirtualClusterState, _Mapping]]] = ..., completed_gpu_ms: _Optional[_Iterable[int]] = ..., sampled: _Optional[int] = ..., sampled_ms: _Optional[int] = ..., crossing: _Optional[_Iterable[int]] = ...) -> None: ...

class VirtualClusterState(_message.Message):
    __slots__ = ("dirty", "review_ms", "job_ms", "memory")
    DIRTY_FIELD_NUMBER: _ClassVar[int]
    REVIEW_MS_FIELD_NUMBER: _ClassVar[int]
    JOB_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    dirty: bool
    review_ms: int
    job_ms: int
    memory: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dirty: _Optional[bool] = ..., review_ms: _Optional[int] = ..., job_ms: _Optional[int] = ..., memory: _Optional[_Iterable[int]] = ...) -> None: ...

class StreamJobEventsRequest(_message.Message):
    __slots__ = ("after", "most")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    after: int
    most: int
    def __init__(self, after: _Optional[int] = ..., most: _Optional[int] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("number", "kind", "time_ms", "label", "facts", "ran_ms")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[JobEvent.Kind]
        SUBMIT: _ClassVar[JobEvent.Kind]
        START: _ClassVar[JobEvent.Kind]
        PREEMPT: _ClassVar[JobEvent.Kind]
        FINISH: _ClassVar[JobEvent.Kind]
        CANCEL: _ClassVar[JobEvent.Kind]
    KIND_UNSPECIFIED: JobEvent.Kind
    SUBMIT: JobEvent.Kind
    START: JobEvent.Kind
    PREEMPT: JobEvent.Kind
    FINISH: JobEvent.Kind
    CANCEL: JobEvent.Kind
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    RAN_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    kind: JobEvent.Kind
    time_ms: int
    label: str
    facts: JobFacts
    ran_ms: int
    def __init__(self, number: _Optional[int] = ..., kind: _Optional[_Union[JobEvent.Kind, str]] = ..., time_ms: _Optional[int] = ..., label: _Optional[str] = ..., facts: _Optional[_Union[JobFacts, _Mapping]] = ..., ran_ms: _Optional[int] = ...) -> None: ...
