import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Apache Iceberg's REST catalog over its JDBC catalog, as its RESTCatalogServer puts them together,
 * but on loopback only, on a free port, which it says. Argument: the folder of the warehouse.
 */
public final class RestCatalog {
    public static void main(String[] words) throws Exception {
        Path folder = Path.of(words[0]);
        Map<String, String> settings =
                Map.of(
                        "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
                        "uri", "jdbc:sqlite:" + folder.resolve("names.db"),
                        "jdbc.schema-version", "V1",
                        "warehouse", folder.toString());
        Catalog catalog = CatalogUtil.buildIcebergCatalog("tests", settings, new Configuration());
        ServletContextHandler handler = new ServletContextHandler("/");
        RESTCatalogServlet servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
        handler.addServlet(new ServletHolder(servlet), "/*");
        Server server = new Server(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        server.setHandler(handler);
        server.start();
        System.out.println(((ServerConnector) server.getConnectors()[0]).getLocalPort());
    }
}
