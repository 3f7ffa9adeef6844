import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.conf.HiveConf.ConfVars;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * Hive's metastore over an embedded Derby, on loopback only, on a free port, which it says. Argument:
 * the folder of its database and its warehouse; there may be one already.
 */
public final class HiveMetastore {
    public static void main(String[] words) throws Exception {
        Path folder = Path.of(words[0]);
        Path database = folder.resolve("names");
        boolean isNew = !database.toFile().exists();
        HiveConf conf = new HiveConf();
        conf.setVar(
                ConfVars.METASTORECONNECTURLKEY,
                "jdbc:derby:;databaseName=" + database + ";create=true");
        conf.setVar(ConfVars.METASTOREWAREHOUSE, folder.resolve("warehouse").toUri().toString());
        conf.setBoolVar(ConfVars.METASTORE_SCHEMA_VERIFICATION, false);
        conf.set("datanucleus.schema.autoCreateAll", "true");
        // The pool that Hive takes by itself is not among Spark's jars.
        conf.setVar(ConfVars.METASTORE_CONNECTION_POOLING_TYPE, "HikariCP");
        if (isNew) {
            // The tables of locks; the others come when they are asked for.
            TxnDbUtil.prepDb(conf);
        }
        IHMSHandler handler =
                HiveMetaStore.newRetryingHMSHandler(
                        new HiveMetaStore.HMSHandler("tests", conf, false), conf, false);
        TServerSocket socket =
                new TServerSocket(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        TThreadPoolServer.Args serving = new TThreadPoolServer.Args(socket);
        serving.processor(new TSetIpAddressProcessor<>(handler));
        System.out.println(socket.getServerSocket().getLocalPort());
        new TThreadPoolServer(serving).serve();
    }
}
