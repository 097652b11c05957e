import sys,time; sys.path.insert(0,'tests')
from fakes import HashingEmbeddings
from langchain_toolrag.types import ToolDocument
from langchain_toolrag.index.tool_index import ToolIndex
from langchain_toolrag.types import ToolFilter
ix=ToolIndex(HashingEmbeddings()); docs=[ToolDocument(bound_name=f"tool_{i}",id=f"tool_{i}",name=f"tool_{i}",description=f"does number {i} things with rain",server=f"s{i%9}") for i in range(10000)]
ix.refresh(docs); ix.embed()
def t(f,n=60):
    r=[]
    for _ in range(n):
        a=time.perf_counter(); f(); r.append(time.perf_counter()-a)
    return sorted(r)[n//2]*1e3
few=ToolFilter(ids={d.id for d in docs[:20]}); most=ToolFilter(ids={d.id for d in docs[:9990]}); pred=ToolFilter(predicate=lambda d: d.id in few.ids)
for name,f in (("none",None),("20 ids",few),("9990 ids",most),("predicate",pred)):
    print(name, round(t(lambda: ix.evidence("does rain 17",filter=f)),2))
